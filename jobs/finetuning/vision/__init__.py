"""Vision-language models: frozen towers, and images among the tokens of a text.

vision_axis.py        the axis vision: whether the tower is trained; the dataset of a trial
image_layouts.py      the tokens and tensors that an image becomes, for each family of models
random_images.py      random images with random texts
processed_images.py   the user's images with texts, by the model's own processor
"""
